from benchmarks import rules


def test_nft_rules_are_counted() -> None:
    listed = {
        "nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"table": {"family": "ip", "name": "nftlb"}},
            {"chain": {"name": "one"}},
            {"chain": {"name": "two"}},
            {
                "rule": {
                    "chain": "one",
                    "expr": [
                        {"match": {"left": {"payload": {"field": "dport"}}, "right": {"set": [80, 443, 8080]}}},
                        {"dnat": {"addr": {"map": {"key": {"meta": {"key": "mark"}}, "data": {"set": [[1, "a"]]}}}}},
                        {"lookup": {"set": "@named"}},
                    ],
                }
            },
            {"map": {"name": "m", "elem": [[1, 2], [3, 4]]}},
            {"set": {"name": "s", "elem": ["a"]}},
            {"set": {"name": "empty"}},
        ]
    }
    assert rules.count_nftables(listed) == {"rules": 1, "chains": 2, "elements": 7}


def test_iptables_rules_are_counted() -> None:
    saved = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SVC - [0:0]\n-A PREROUTING -j KUBE-SVC\nCOMMIT\n"
    assert rules.count_iptables(saved) == {"rules": 1, "chains": 2, "elements": 0}
