"""What names on the command line mean."""

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster.name_arguments import NameArgument, parse


@pytest.mark.parametrize(
    ("text", "option", "meant"),
    [
        ("web", None, NameArgument("", "mine", "web")),
        ("shop/web", None, NameArgument("", "shop", "web")),
        ("shop/web", "shop", NameArgument("", "shop", "web")),
        ("svc/web", None, NameArgument("service", "mine", "web", "svc")),
        ("service/web", "mine", NameArgument("service", "mine", "web", "service")),
        ("farm/web", None, NameArgument("farm", "mine", "web", "farm")),
        ("nftlbfarms/web", None, NameArgument("farm", "mine", "web", "nftlbfarms")),
        # A namespace may be called like a kind.
        ("services/web", "services", NameArgument("", "services", "web")),
    ],
)
def test_a_name_may_have_a_kind_or_a_namespace(text: str, option: str | None, meant: NameArgument) -> None:
    assert parse(text, option, "mine") == meant


def test_a_namespace_that_the_option_contradicts_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="'shop/web' is in the namespace shop, but --namespace says other"):
        parse("shop/web", "other", "other")
