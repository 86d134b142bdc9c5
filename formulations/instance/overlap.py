"""Which share of traffic hides behind computation: an assumption, with its source.

Visible time is (1 - share) times the whole, so bounds that are linear in it carry over; what ZeRO 2
and 3 exchange with every micro-batch is a constant of each layer, and hides no longer than the pass
lasts. What is hidden still occupies its link.
"""

from pydantic import Field

from formulations.instance.input_limits import Name, Text
from formulations.instance.record import Record
from formulations.instance.sources import NOT_STATED, Kind


class Overlap(Record):
    """Shares from 0 to below 1; 0: all of it is seen."""

    tensor_parallel: float = Field(default=0.0, ge=0, lt=1)  #: behind products
    #: Behind backward passes where a replica is one stage; see `hidden_sync`.
    gradient_sync: float = Field(default=0.0, ge=0, lt=1)
    #: What ZeRO 2 and 3 reduce and gather with every micro-batch, behind the pass it belongs to.
    sharding: float = Field(default=0.0, ge=0, lt=1)
    kind: Kind = "assumed"
    source: Text = NOT_STATED

    def hidden_sync(self, pp: int, chunks: int) -> float:
        """Share of the gradient sync that a shape hides.

        Gradients are sent layer by layer where a replica is one stage, and else chunk by chunk, of
        which the last is seen (NeMo user guide, "Communication Overlap").
        """
        return self.gradient_sync if pp == 1 else min(self.gradient_sync, (chunks - 1) / chunks)


class FrameworksFile(Record):
    """The file overlap.yaml."""

    overlap: dict[Name, Overlap]
