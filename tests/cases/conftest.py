"""What the cases share: stores of each kind, and ways to hand a run on."""

from tests.anystore import any_store  # noqa: F401  # a fixture for all
from tests.cases.people import way  # noqa: F401  # the same
