import pytest

from kube_nftlb import errors
from kube_nftlb.environment import ListenAddress
from kube_nftlb.settings import AgentSettings, OperatorSettings


def test_everything_has_a_default() -> None:
    settings = OperatorSettings.from_environment({"KUBE_NFTLB_LOG_LEVEL": ""})
    assert settings.metrics_address == ListenAddress("127.0.0.1", 9195)
    assert settings.health_address == ListenAddress("127.0.0.1", 9196)
    assert (settings.log_level, settings.log_format, settings.relist_s) == ("INFO", "json", 300)


def test_the_agent_is_asked_for_its_health_where_kube_proxy_is() -> None:
    settings = AgentSettings.from_environment({"KUBE_NFTLB_NODE_NAME": "node-1"})
    assert settings.health_address == ListenAddress("::", 10256)
    assert settings.sync_overdue_s == 60


def test_an_ipv6_address_stands_in_brackets() -> None:
    settings = OperatorSettings.from_environment({"KUBE_NFTLB_METRICS_ADDRESS": "[::1]:80"})
    assert settings.metrics_address == ListenAddress("::1", 80)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("KUBE_NFTLB_METRICS_ADDRESS", "9195", "host:port"),
        ("KUBE_NFTLB_METRICS_ADDRESS", "x:0", "from 1 to 65535"),
        ("KUBE_NFTLB_LOG_LEVEL", "loud", "DEBUG, INFO, WARNING, ERROR"),
        ("KUBE_NFTLB_LOG_FORMAT", "xml", "json, console"),
        ("KUBE_NFTLB_RELIST_SECONDS", "1", "from 10 to 86400"),
        # An agent that has nothing to say reports each minute.
        ("KUBE_NFTLB_AGENT_SILENT_SECONDS", "60", "from 90 to 86400"),
        ("KUBE_NFTLB_RELIST_SECONDS", "nan", "from 10 to 86400"),
        ("KUBE_NFTLB_RELIST_SECONDS", "soon", "number of seconds"),
        ("KUBE_NFTLB_ANNOTATION_MARKS", "0x1000-", "all, none, or numbers and ranges from 2 to"),
        ("KUBE_NFTLB_ANNOTATION_QUEUES", "65536", "from 0 to 65535"),
        ("KUBE_NFTLB_ANNOTATION_QUEUES", "3-2", "from 0 to 65535"),
        ("KUBE_NFTLB_ANNOTATION_HELPERS", "ftp,http", "words from amanda, ftp"),
    ],
)
def test_a_value_of_no_use_is_refused_with_a_sentence(name: str, value: str, sentence: str) -> None:
    with pytest.raises(errors.UsageError, match=sentence):
        OperatorSettings.from_environment({name: value})


def test_metrics_of_farms_are_off_by_default_and_limited() -> None:
    node = {"KUBE_NFTLB_NODE_NAME": "node-1"}
    off = AgentSettings.from_environment(node)
    assert (off.traffic, off.conntrack.count_bytes) == (None, False)
    on = AgentSettings.from_environment(
        {**node, "KUBE_NFTLB_METRICS_PER_FARM": "on", "KUBE_NFTLB_METRICS_FARM_SELECTOR": "team=a"}
    )
    assert on.traffic is not None
    assert (on.traffic.farms, on.traffic.backends, on.conntrack.count_bytes) == (20, 10, True)
    assert on.traffic.selector.selects({"team": "a"})
    assert not on.traffic.selector.selects({})


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("KUBE_NFTLB_METRICS_FARMS_MAX", "1001", "from 1 to 1000"),
        ("KUBE_NFTLB_METRICS_FARM_BACKENDS_MAX", "-1", "from 0 to 100"),
        ("KUBE_NFTLB_METRICS_FARM_SELECTOR", "team==a,,", "is none of: a=b"),
        ("KUBE_NFTLB_METRICS_PER_FARM", "yes", "must be on or off"),
    ],
)
def test_a_limit_of_no_use_is_refused_with_a_sentence(name: str, value: str, sentence: str) -> None:
    node = {"KUBE_NFTLB_NODE_NAME": "node-1", "KUBE_NFTLB_METRICS_PER_FARM": "on"}
    with pytest.raises(errors.UsageError, match=sentence):
        AgentSettings.from_environment({**node, name: value})
