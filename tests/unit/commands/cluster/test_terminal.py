"""What commands print."""

import pytest

from kube_nftlb.commands.cluster import terminal


@pytest.mark.parametrize("address", ["6e:23:b2:cd:73:19", "fd00::ab:cd:1", "2001:db8:100::1", "fd00:a:ab:b:cd:o:m:x"])
def test_an_address_is_printed_as_it_is(capsys: pytest.CaptureFixture[str], address: str) -> None:
    terminal.show(terminal.plain(f"another host has the address, at {address} (AddressInUse)"))
    table = terminal.columns("ADDRESS")
    table.add_row(terminal.plain(address))
    terminal.show(table)
    assert capsys.readouterr().out.count(address) == 2
