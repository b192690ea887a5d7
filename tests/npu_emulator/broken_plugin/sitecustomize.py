"""On PYTHONPATH: ascend_vl's plugin does not work in the worker of rank 1, as if it were missing there."""

import importlib.abc
import importlib.machinery
import sys

BROKEN = 1


class AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    name = "vllm.v1.worker.worker_base"

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        init = module.WorkerWrapperBase.init_worker

        def init_worker(wrapper, *given, **named):
            init(wrapper, *given, **named)
            if wrapper.rpc_rank == BROKEN:
                from ascend_vl import plugin

                plugin._registered = False

        module.WorkerWrapperBase.init_worker = init_worker


sys.meta_path.insert(0, AfterImport())
