"""What names on the command line mean."""

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster.asked import Asked, asked


@pytest.mark.parametrize(
    ("text", "option", "meant"),
    [
        ("web", None, Asked("", "mine", "web")),
        ("shop/web", None, Asked("", "shop", "web")),
        ("shop/web", "shop", Asked("", "shop", "web")),
        ("svc/web", None, Asked("service", "mine", "web", "svc")),
        ("service/web", "mine", Asked("service", "mine", "web", "service")),
        ("farm/web", None, Asked("farm", "mine", "web", "farm")),
        ("nftlbfarms/web", None, Asked("farm", "mine", "web", "nftlbfarms")),
        # A namespace may be called like a kind.
        ("services/web", "services", Asked("", "services", "web")),
    ],
)
def test_a_name_may_have_a_kind_or_a_namespace(text: str, option: str | None, meant: Asked) -> None:
    assert asked(text, option, "mine") == meant


def test_a_namespace_that_the_option_contradicts_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="'shop/web' is in the namespace shop, but --namespace says other"):
        asked("shop/web", "other", "other")
