"""NftlbPolicy: an allow list or deny list of client addresses that farms refer to."""

from typing import Annotated, Literal

from pydantic import Field

from kube_nftlb.api.base import Cel, Model

CIDRS_MAX = 16384


class PolicySpec(Model):
    """What a policy says of clients."""

    type: Annotated[
        Literal["allow", "deny"],
        Field(description="allow: nobody else gets in. deny: these do not get in."),
    ]
    cidrs: Annotated[
        tuple[
            Annotated[
                str,
                Field(
                    max_length=49,
                    json_schema_extra={
                        "x-kubernetes-validations": [
                            Cel("isCIDR(self)", "must be an address range such as 10.0.0.0/8 or fd00::/64").schema()
                        ]
                    },
                ),
            ],
            ...,
        ],
        Field(
            description="Address ranges, of either family.",
            max_length=CIDRS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
