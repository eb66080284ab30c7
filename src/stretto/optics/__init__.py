"""Scheduling steps on optical planes (SWOT), apart from any plan.

An :class:`~stretto.optics.model.Instance` says what each step must carry in which matching and
what the planes can do; a *schedule* is a matrix, the bytes that each plane carries in each step.
Everything else (when planes turn, when steps end) follows from it: see
:func:`~stretto.optics.model.course`.
"""
