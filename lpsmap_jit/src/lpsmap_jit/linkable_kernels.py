"""Kernels as intermediate code for other kernels: optimised only in the kernel that Python calls.

numba generates machine code and two wrappers for every compiled function, and optimises all its
callees again. In a chain of a hundred kernels, a few of which are called from Python, this takes
most of the time. A part is only intermediate code; its callers link it and optimise the whole.
"""

from __future__ import annotations

from typing import Any

from lpsmap_jit.numba_names import CodeLibrary, Compiler, compile_result, llvm, types


class _Part(CodeLibrary):  # type: ignore[misc]
    """Intermediate code of a kernel and of all that it calls, for others to link."""

    _shared_module: Any = None

    def _optimize_final_module(self) -> None:
        """Do nothing: the kernel that links the part optimises it."""

    def _finalize_final_module(self) -> None:
        """Generate no machine code."""
        self._finalize_dynamic_globals()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """Return the code, in which each function may be linked into several kernels."""
        self._ensure_finalized()
        if self._shared_module is None:
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage == llvm.Linkage.external:
                    function.linkage = "linkonce_odr"
            self._shared_module = self._final_module
        return self._shared_module


class ForCallers(Compiler):  # type: ignore[misc]
    """The compiler of numba without machine code and wrappers."""

    def define_pipelines(self) -> Any:
        """Return the passes of numba, configured for a part."""
        state = self.state
        flags = state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


def offer(part: Any, dispatcher: Any) -> None:
    """Make the part of a dispatcher available to kernels that call it."""
    add = dispatcher.add_overload

    def add_with_constants(compiled: Any) -> None:
        for environment in compiled._find_referenced_environments():  # as numba does when loading
            compiled.codegen.set_env(environment.env_name, environment)
        add(compiled)

    def keep_for_callers(compiled: Any) -> None:
        if compiled.entry_point is None:
            compiled = compiled._replace(entry_point=object())
            target = compiled.target_context
            target.insert_user_function(compiled.entry_point, compiled.fndesc, [compiled.library])
        part.overloads[tuple(compiled.signature.args)] = compiled

    def template_for(args: Any, kws: Any) -> Any:
        # literal arguments do not specialise a kernel
        args = [types.unliteral(kind) for kind in args]
        return template(args, {name: types.unliteral(kind) for name, kind in kws.items()})

    template = part.get_call_template
    dispatcher.add_overload, part.add_overload = add_with_constants, keep_for_callers
    dispatcher.get_call_template, dispatcher.get_overload = template_for, part.get_overload


def stored(part: Any) -> tuple[Any, ...]:
    """Return the picklable content of a part."""
    code = part.library._get_module_for_linking().as_bitcode()
    environments = tuple(part._find_referenced_environments())
    descriptor = part.fndesc
    descriptor.typemap = descriptor.calltypes = None  # as numba does, too
    return (
        *(part.library.name, code, descriptor, part.environment, part.signature),
        *(part.reload_init, environments),
    )


def restored(target: Any, content: tuple[Any, ...]) -> Any:
    """Rebuild a part from its content."""
    name, code, descriptor, environment, signature, reload_init, environments = content
    for function in reload_init:
        function()
    library = _Part(target.codegen(), name)
    library._final_module = llvm.parse_bitcode(code)
    library._finalize_final_module()
    return compile_result(
        target_context=target,
        typing_context=target.typing_context,
        library=library,
        entry_point=object(),
        environment=environment,
        fndesc=descriptor,
        signature=signature,
        objectmode=False,
        lifted=(),
        reload_init=reload_init,
        referenced_envs=environments,
    )
