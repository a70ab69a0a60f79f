"""The fixed sessions of a farm."""

from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import Model

SESSIONS_MAX = 1024


class Session(Model):
    """A client that always goes to the same backend."""

    client: Annotated[
        str,
        Field(
            description="The client, as identified by the farm's persistence: an IP address for srcip, a MAC address "
            "for srcmac, a port for srcport, in lower case. For several fields, their values in the same order, such "
            "as '10.0.0.1 . 4000'.",
            min_length=1,
            max_length=80,
            pattern=r"^[0-9a-f.:]+( \. [0-9a-f.:]+)*$",
        ),
    ]
    backend: Annotated[str, Field(description="Name of the backend.", min_length=1, max_length=253)]
