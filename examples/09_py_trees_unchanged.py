"""A py_trees tree, unchanged: stock behaviours, decorators and the blackboard; run() stands in for tick_tock()."""

import py_trees
from py_trees.behaviour import Behaviour
from py_trees.common import Access, ParallelPolicy, Status

from jianmu import Agent


class Battery(Behaviour):
    """Write the charge to the blackboard. RUNNING for ever."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.blackboard = self.attach_blackboard_client(name=name)
        self.blackboard.register_key("charge", access=Access.WRITE)

    def setup(self, **kwargs: object) -> None:
        """Open the sensor; called once, before the first tick."""
        print(f"{self.name}: setup with {kwargs}")
        self.blackboard.charge = 30

    def update(self) -> Status:
        """Lose some charge in each tick."""
        self.blackboard.charge -= 5
        return Status.RUNNING


def build() -> Behaviour:
    """Work for a while beside the battery; go home when its charge is low."""
    work = py_trees.timers.Timer("work", duration=5.0)
    is_low = py_trees.common.ComparisonExpression("charge", 10, lambda charge, low: charge < low)
    guard = py_trees.behaviours.CheckBlackboardVariableValue("battery low", is_low)
    home = py_trees.composites.Sequence("go home", memory=False, children=[guard, py_trees.behaviours.Success("dock")])
    tasks = py_trees.composites.Selector("tasks", memory=False, children=[home, work])
    policy = ParallelPolicy.SuccessOnSelected([tasks], synchronise=False)
    return py_trees.composites.Parallel("robot", policy=policy, children=[Battery("battery"), tasks])


def main() -> None:
    """Run it under an agent, with a visitor and py_trees' own display."""
    snapshot = py_trees.visitors.SnapshotVisitor()
    agent = Agent(build(), setup={"port": "/dev/battery"}, visitors=[snapshot], poll_interval=0.01)
    agent.tree.add_post_tick_handler(
        lambda tree: print(f"tick {tree.count}: charge {py_trees.blackboard.Blackboard.get('charge')}")
    )
    status = agent.run_sync()
    print(status.name)
    print(py_trees.display.ascii_tree(agent.root, show_status=True))


if __name__ == "__main__":
    main()
