"""Outcomes by the answers that led to them."""

from __future__ import annotations

from collections.abc import Iterable

from harness.crashstates.ranks.outcome import Outcome
from harness.crashstates.read.questions import Answer, Question, Shape, View


class _Node:
    """After some answers: the question that was asked next, where each answer leads, and what else was asked next.

    ``by_shape``: where the answer leads that all states of a shape have in common; None: they have none.
    """

    __slots__ = ("by_answer", "by_shape", "other", "outcome", "question")

    def __init__(self) -> None:
        self.question: Question | None = None
        self.by_answer: dict[Answer, _Node] = {}
        self.by_shape: dict[Shape, _Node | None] = {}
        self.other: _Node | None = None
        self.outcome: Outcome | None = None

    def answered(self, view: View) -> _Node | None:
        """Where the answer of this state leads."""
        if self.question is None:
            return None
        node = self.by_answer.get(self.question.answer(view))
        if node is not None and view.shape not in self.by_shape:
            self.by_shape[view.shape] = node if self.question.is_of_shape(view) else None
        return node


class Memo:
    """A tree of questions. After the same answers most readers ask the same next; where one did not, all are tried."""

    def __init__(self) -> None:
        self._top = _Node()

    def add(self, questions: Iterable[Question], view: View, outcome: Outcome) -> None:
        """The state of ``view`` was read; the reader asked ``questions`` and came to ``outcome``."""
        node = self._top
        for question in questions:
            while node.question is not None and node.question != question:
                if node.other is None:
                    node.other = _Node()
                node = node.other
            node.question = question
            node = node.by_answer.setdefault(question.answer(view), _Node())
        node.outcome = outcome

    def find(self, view: View) -> Outcome | None:
        """The outcome of a read whose every question this state answers alike; None if there was none."""
        node: _Node | None = self._top
        pending: list[_Node] = []
        while True:
            if node is None:
                if not pending:
                    return None
                node = pending.pop()
            if node.outcome is not None:
                return node.outcome
            if node.other is not None:
                pending.append(node.other)
            node = node.by_shape.get(view.shape) or node.answered(view)
