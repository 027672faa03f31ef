"""The time of each kernel of a program: `Executable.profile` and `hlo-disc profile`."""

from hlo_disc.profile.result import KernelTime, LaunchTime, Profile

__all__ = ["KernelTime", "LaunchTime", "Profile"]
