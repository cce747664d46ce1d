"""ScienceWorld: experiments of elementary science in a simulated house, on the pip simulator.

After arXiv 2203.07540. The simulator is a Java program that comes with the package; ``jvm`` starts
and ends it.
"""

from importlib.util import find_spec

from interlat.config import UserError
from interlat.envs.base import EnvironmentKind

if not find_spec("scienceworld"):
    raise UserError(
        'task.name: scienceworld needs one more package: pip install "interlat[scienceworld]"'
    )

KIND = EnvironmentKind(
    environment="interlat.envs.scienceworld.environment:ScienceWorldEnvironment",
    preparation="interlat.envs.scienceworld.prepare",
)
