"""Our ScienceWorld beside the package's own wrapper: steps a second, and whether they repeat.

python benchmarks/science_steps.py

Both play the simulator's solutions of the same tasks, twice, side by side in one run. The wrapper
asks for every valid action after each step; ours asks when it is wanted. Ours also gives objects
equal hashes, so that the second play is the first again.
"""

import os
import time
from collections.abc import Callable, Sequence

import click
from scienceworld import ScienceWorldEnv

from interlat.envs.scienceworld.environment import ScienceWorldEnvironment
from interlat.envs.scienceworld.jvm import MEMORY_MIB, World
from interlat.tasks import Task

VARIATION = 2
NAMES = (
    "use-thermometer",
    "power-component",
    "find-plant",
    "chemistry-mix-paint-secondary-color",
    "identify-life-stages-2",
    "inclined-plane-determine-angle",
)

Play = Callable[[str, Sequence[str]], list[str]]


def ours(environment: ScienceWorldEnvironment) -> Play:
    """Play a task's solution in our environment."""

    def play(name: str, actions: Sequence[str]) -> list[str]:
        args = {"name": name, "variation": VARIATION}
        environment.reset(Task(name, "scienceworld", "train", name, env_args=args))
        return [environment.step(action).observation for action in actions]

    return play


def theirs(environment: ScienceWorldEnv) -> Play:
    """Play a task's solution in the package's wrapper."""

    def play(name: str, actions: Sequence[str]) -> list[str]:
        environment.load(name, VARIATION)
        environment.reset()
        return [environment.step(action)[0] for action in actions]

    return play


@click.command()
def main() -> None:
    """Print steps a second of both, their ratio, and the tasks that came out the same twice."""
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Xmx{MEMORY_MIB}m"  # the wrapper's may otherwise take 4 GB
    world = World()
    solutions = {name: world.gold(name, VARIATION) for name in NAMES}
    steps = 2 * sum(map(len, solutions.values()))
    environment, wrapper = ScienceWorldEnvironment(step_limit=1000), ScienceWorldEnv()
    rates = {}
    for who, play in {"wrapper": theirs(wrapper), "ours": ours(environment)}.items():
        for name, actions in solutions.items():
            play(name, actions)  # the JVM compiles what it runs often
        start = time.perf_counter()
        first, second = ([play(*item) for item in solutions.items()] for _ in range(2))
        rates[who] = steps / (time.perf_counter() - start)
        same = sum(one == other for one, other in zip(first, second, strict=True))
        print(f"{who}: {rates[who]:.0f} steps/s, {same} of {len(NAMES)} tasks the same twice")
    print(f"ratio {rates['ours'] / rates['wrapper']:.2f} (n = {steps} steps)")
    for each in (environment, world, wrapper):
        each.close()


if __name__ == "__main__":
    main()
