"""Kernels as parts of other kernels: lowered once, optimised only in the kernel that is called.

numba makes machine code of every function that it compiles, with two wrappers to call it by, and
optimises all that it calls in it once more. In a chain of a hundred kernels of which a few are
called from Python, that is most of the time. A part is intermediate code and nothing else; whoever
calls it takes that in, and optimises the whole.
"""

from __future__ import annotations

from typing import Any

from lpsmap_jit.numba_names import CodeLibrary, Compiler, compile_result, llvm, types

__all__ = ["ForCallers", "offer", "restored", "stored"]


class _Part(CodeLibrary):  # type: ignore[misc]
    """Intermediate code of a kernel and of all that it calls, for others to link."""

    _shared_module: Any = None

    def _optimize_final_module(self) -> None:
        """Leave that to the kernel that takes the part in."""

    def _finalize_final_module(self) -> None:
        """Make no machine code of it."""
        self._finalize_dynamic_globals()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """Return the code; each function may be in any number of kernels."""
        self._ensure_finalized()
        if self._shared_module is None:
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage == llvm.Linkage.external:
                    function.linkage = "linkonce_odr"
            self._shared_module = self._final_module
        return self._shared_module


class ForCallers(Compiler):  # type: ignore[misc]
    """numba's compiler, but for machine code and wrappers."""

    def define_pipelines(self) -> Any:
        """Return numba's passes, set to make a part."""
        state = self.state
        flags = state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


def offer(part: Any, dispatcher: Any) -> None:
    """Let kernels that call a dispatcher take in its part."""
    add = dispatcher.add_overload

    def add_with_constants(compiled: Any) -> None:
        for environment in compiled._find_referenced_environments():  # as numba does on loading
            compiled.codegen.set_env(environment.env_name, environment)
        add(compiled)

    def keep_for_callers(compiled: Any) -> None:
        if compiled.entry_point is None:
            compiled = compiled._replace(entry_point=object())
            target = compiled.target_context
            target.insert_user_function(compiled.entry_point, compiled.fndesc, [compiled.library])
        part.overloads[tuple(compiled.signature.args)] = compiled

    def template_for(args: Any, kws: Any) -> Any:
        # a kernel that is called with 0 here and with n there is the same kernel
        args = [types.unliteral(kind) for kind in args]
        return template(args, {name: types.unliteral(kind) for name, kind in kws.items()})

    template = part.get_call_template
    dispatcher.add_overload, part.add_overload = add_with_constants, keep_for_callers
    dispatcher.get_call_template, dispatcher.get_overload = template_for, part.get_overload


def stored(part: Any) -> tuple[Any, ...]:
    """Return what a part can be restored from."""
    code = part.library._get_module_for_linking().as_bitcode()
    environments = tuple(part._find_referenced_environments())
    descriptor = part.fndesc
    descriptor.typemap = descriptor.calltypes = None  # as numba leaves out, too
    return (
        *(part.library.name, code, descriptor, part.environment, part.signature),
        *(part.reload_init, environments),
    )


def restored(target: Any, content: tuple[Any, ...]) -> Any:
    """Return the part that was stored."""
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
