"""Which nodes train, and which are to train next."""

from dataclasses import replace

from solver.replay.policy import Configuration, Reconfigure


class Formation:
    """Nodes that are ready, the configuration that trains or did last, and the one to come.

    The next one is there during a pause only.
    """

    def __init__(self, reconfigure: Reconfigure) -> None:
        self.ready: frozenset[str] = frozenset()
        self.trained: Configuration | None = None
        self.next: Configuration | None = None
        self._reconfigure = reconfigure

    @property
    def step_ns(self) -> int:
        """A step of the configuration that trains."""
        assert self.trained is not None
        return self.trained.step_ns

    @property
    def needed(self) -> frozenset[str]:
        """Nodes in use; during a pause also those of pipelines from which layers are copied."""
        used = frozenset() if self.next is None else self.next.nodes
        if self.trained is not None and (self.next is None or self.trained.pipelines):
            used |= self.trained.nodes
        return used

    @property
    def holds(self) -> bool:
        """Whether a node that has trained still holds what it did, or none ever has."""
        return self.trained is None or bool(self.trained.nodes - self.trained.lost)

    def fail(self, nodes: frozenset[str]) -> None:
        """These nodes fail."""
        self.ready -= nodes
        self.trained, self.next = (
            one and replace(one, lost=one.lost | nodes) for one in (self.trained, self.next)
        )

    def best(self) -> Configuration | None:
        """What the nodes that are ready would train as."""
        return self._reconfigure(self.trained, self.ready)

    def begin(self) -> None:
        """The next configuration trains."""
        self.trained, self.next = self.next, None
