"""The agent's own nftables table, which all engines share: refusals, policies, limits, logs, masquerading."""
