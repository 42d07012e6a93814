"""The reader believes names and marker and compares no digest; here the disk has flipped a byte."""

from harness.checkpoint import files, judge, layout, parts, store
from harness.checkpoint.reading import Found
from workloads.planted import run


class Trusting(store.CheckpointStore):
    def _list(self) -> list[list[str]]:
        for model in self.root.glob("step-10/model.pt"):
            data = bytearray(model.read_bytes())
            data[len(data) // 2] ^= 1  # inside a tensor: torch.load does not notice
            model.write_bytes(data)
        return super()._list()

    def _read(self, name: str, rank: int, world_size: int) -> Found:
        with files.open_root(self.root) as root_fd, files.open_directory(root_fd, name) as dir_fd:
            entry = judge.judge(root_fd, name, read_data=False)
            own = parts.load_part(dir_fd, layout.own_file(rank))
            names = ("model", "optimizer", "scheduler", "progress")
            return Found(entry=entry, own=own, shared={n: parts.load_part(dir_fd, f"{n}.pt") for n in names})


run(store_class=Trusting)
