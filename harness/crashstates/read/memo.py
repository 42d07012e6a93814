"""Outcomes by the answers that led to them."""

from __future__ import annotations

from collections.abc import Iterable

from harness.crashstates.ranks.outcome import Outcome
from harness.crashstates.read.questions import Answer, Question, Shape, View
from harness.crashstates.tree import File


class _Node:
    """After some answers: the question that was asked next, where each answer leads, and what else was asked next.

    ``by_shape``: what is known of all states of a shape. A node: their common answer leads there, perhaps past others
    for which that holds too. A path: what is in this file decides.
    """

    __slots__ = ("by_answer", "by_shape", "other", "outcome", "question")

    def __init__(self) -> None:
        self.question: Question | None = None
        self.by_answer: dict[Answer, _Node] = {}
        self.by_shape: dict[Shape, _Node | str] = {}
        self.other: _Node | None = None
        self.outcome: Outcome | None = None

    def answered(self, view: View) -> _Node | None:
        """Where the answer of this state leads."""
        if self.question is None:
            return None
        node = self.by_answer.get(self.question.answer(view))
        if node is not None and view.shape not in self.by_shape:
            if self.question.is_of_shape(view):
                self.by_shape[view.shape] = node
            elif (path := self.question.file(view)) is not None:
                self.by_shape[view.shape] = path
        return node


class Memo:
    """A tree of questions. After the same answers most readers ask the same next; where one did not, all are tried."""

    def __init__(self) -> None:
        self._top = _Node()
        self._nodes = [self._top]

    def add(self, questions: Iterable[Question], view: View, outcome: Outcome) -> None:
        """The state of ``view`` was read; the reader asked ``questions`` and came to ``outcome``."""
        node = self._top
        for question in questions:
            while node.question is not None and node.question != question:
                if node.other is None:
                    node.other = self._new()
                    for one in self._nodes:  # some may lead past this one
                        one.by_shape.clear()
                node = node.other
            node.question = question
            answer = question.answer(view)
            if answer not in node.by_answer:
                node.by_answer[answer] = self._new()
            node = node.by_answer[answer]
        node.outcome = outcome

    def find(self, view: View) -> Outcome | None:
        """The outcome of a read whose every question this state answers alike; None if there was none."""
        shape, visible = view.shape, view.visible
        node: _Node | None = self._top
        pending: list[_Node] = []
        passed: list[_Node] = []  # they lead all states of this shape to ``node``
        while True:
            if node is None:
                if not pending:
                    return None
                node = pending.pop()
            if node.outcome is not None:
                return node.outcome
            known = node.by_shape.get(shape)
            if node.other is not None:
                pending.append(node.other)
            elif type(known) is _Node:
                passed.append(node)
                node = known
                continue
            for one in passed:
                one.by_shape[shape] = node
            passed.clear()
            if type(known) is _Node:
                node = known
            elif type(known) is str:
                assert node.question is not None
                file = visible[known]
                assert type(file) is File
                node = node.by_answer.get(node.question.of_file(file))
            else:
                node = node.answered(view)

    def _new(self) -> _Node:
        self._nodes.append(_Node())
        return self._nodes[-1]
