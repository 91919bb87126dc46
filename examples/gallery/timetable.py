"""
A timetable and its contradiction
=================================

Lessons get hours. A teacher cannot be in two lessons at once, nor can a class, and the lessons of
a subject are on different days. If too much is asked for, the solver names the factors that
contradict each other.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from lpsmap import AtMostOne, ConvergenceWarning, FactorGraph, Xor

DAYS, HOURS = ["Mon", "Tue", "Wed"], 3
LESSONS = [  # subject, teacher, class
    *[("maths", "Noether", group) for group in "AABB"],
    *[("physics", "Curie", group) for group in "AABB"],
    *[("history", "Ranke", group) for group in "AB"],
    *[("music", "Clara", group) for group in "AB"],
]
rng = np.random.default_rng(0)
wishes = rng.normal(size=(len(LESSONS), len(DAYS) * HOURS))


def timetable(wishes):
    """Return the graph, its variables (lessons, hours), and what each declaration is about."""
    graph = FactorGraph()
    u = graph.variable_from(wishes)
    about = {graph.add(Xor(u)): "each lesson has one hour"}
    for field, name in ((1, "teacher"), (2, "class")):
        for who in sorted({lesson[field] for lesson in LESSONS}):
            own = [i for i, lesson in enumerate(LESSONS) if lesson[field] == who]
            about[graph.add(AtMostOne(u[own], axis=0))] = f"{name} {who}"
    for lesson in sorted(set(LESSONS)):
        own = [i for i, other in enumerate(LESSONS) if other == lesson]
        for day in range(len(DAYS)) if len(own) > 1 else ():
            hours = u[own, day * HOURS : (day + 1) * HOURS].reshape(-1)
            about[graph.add(AtMostOne(hours))] = f"{lesson[0]} of {lesson[2]} on {DAYS[day]}"
    return graph, u, about


# %%
# The wishes are scores of hours. Exact search grants as many as possible.

graph, u, _ = timetable(wishes)
found = graph.solve_map(exact=True)
print("proved" if found.ok else "not proved", f"wishes: {found.total:.2f}")
hours = u.value.argmax(1)

# %%
# Rows are hours, and a column is a class on a day.

figure, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
colours = {"maths": "#0072b2", "physics": "#d55e00", "history": "#009e73", "music": "#cc79a7"}
for (subject, teacher, group), hour in zip(LESSONS, hours, strict=True):
    x, y = 2 * (hour // HOURS) + "AB".index(group), hour % HOURS
    ax.add_patch(plt.Rectangle((x + 0.04, y + 0.06), 0.92, 0.88, color=colours[subject]))
    ax.text(
        x + 0.5, y + 0.5, f"{subject}\n{teacher}", color="white", ha="center", va="center", size=8
    )
ticks = [f"{day} {group}" for day in DAYS for group in "AB"]
ax.set_xticks(np.arange(len(ticks)) + 0.5, ticks)
ax.set_yticks(np.arange(HOURS) + 0.5, range(1, HOURS + 1))
ax.set(xlim=(0, len(ticks)), ylim=(HOURS, 0), ylabel="hour")

# %%
# Now Noether comes on Monday alone: other hours get ``-inf``. The solver proves that there is no
# timetable, and names factors that contradict each other, by declaration and row: both lessons of a
# class would be on one day.

busy = wishes.copy()
own = [i for i, lesson in enumerate(LESSONS) if lesson[1] == "Noether"]
busy[own, HOURS:] = -np.inf
graph, u, about = timetable(busy)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    solution = graph.solve()
print(solution.status[0].name)
for factor, row in solution.contradictions[0]:
    lesson = f": {LESSONS[row]}" if "each lesson" in about[factor] else ""
    print(about[factor] + lesson)
