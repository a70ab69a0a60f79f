"""An nftlb whose nft refuses what has a text in it: the real one, with a function before that of libnftables.

``program`` makes it. The text is in the file that ``KUBE_NFTLB_TEST_REFUSED`` names, as long as it is to be refused.
"""

import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nft_ctx;

int nft_run_cmd_from_buffer(struct nft_ctx *context, const char *commands)
{
	int (*run)(struct nft_ctx *, const char *) = dlsym(RTLD_NEXT, "nft_run_cmd_from_buffer");
	FILE *file = fopen(getenv("KUBE_NFTLB_TEST_REFUSED"), "r");
	char text[256] = "";

	if (file) {
		text[fread(text, 1, sizeof(text) - 1, file)] = 0;
		fclose(file);
	}
	if (!text[0] || !strstr(commands, text))
		return run(context, commands);
	fprintf(stderr, "refused: %s\n", text);
	errno = ENOMEM;
	return -1;
}
"""


def program(folder: Path, nftlb: str) -> Path:
    """Write a program that runs ``nftlb`` so. Return its path."""
    folder.mkdir()
    source, library, script = folder / "refuse.c", folder / "refuse.so", folder / "refusing"
    source.write_text(_SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    script.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {nftlb} "$@"\n')
    script.chmod(0o755)
    return script
