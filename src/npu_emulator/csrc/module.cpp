// The Python module: errors, collectives on CPU aliases, and what `torch.npu` is made of.
#include <pybind11/functional.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/extension.h>

#include "kernels.h"
#include "npu.h"

namespace py = pybind11;

namespace {

// Never released: errors may be raised while Python shuts down.
PyObject* error_class = nullptr;
PyObject* memory_error_class = nullptr;

void raise_python(int code, const std::string& message) {
  py::gil_scoped_acquire gil;
  if (error_class == nullptr) throw std::runtime_error(message);
  py::handle type = code == 207001 && memory_error_class != nullptr ? memory_error_class : error_class;
  py::object error = type(message, code);
  PyErr_SetObject(type.ptr(), error.ptr());
  python_error raised;
  raised.persist();
  throw raised;
}

// A Python function that may outlive the interpreter's lock.
std::function<void()> held(py::object function) {
  std::shared_ptr<py::object> shared(new py::object(std::move(function)), [](py::object* object) {
    py::gil_scoped_acquire gil;
    delete object;
  });
  return [shared]() {
    py::gil_scoped_acquire gil;
    (*shared)();
  };
}

template <typename Wait>
void wait_without_gil(Wait wait) {
  if (PyGILState_Check()) {
    py::gil_scoped_release release;
    wait();
  } else {
    wait();
  }
}

class DoneWork final : public c10d::Work {
 public:
  DoneWork(c10d::OpType type, std::vector<at::Tensor> outputs)
      : c10d::Work(-1, type), outputs_(std::move(outputs)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
    future_->markCompleted(c10::IValue(outputs_));
    finish();
  }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

at::Tensor on_cpu(const at::Tensor& tensor) { return tensor.is_privateuseone() ? npu::to_cpu_alias(tensor) : tensor; }

Tensors aliases(const Tensors& tensors) {
  Tensors out;
  for (const auto& tensor : tensors) out.push_back(on_cpu(tensor));
  return out;
}

std::vector<Tensors> aliases(const std::vector<Tensors>& lists) {
  std::vector<Tensors> out;
  for (const auto& list : lists) out.push_back(aliases(list));
  return out;
}

// HCCL as gloo over the same memory: each collective has finished when its call returns.
class Hccl final : public c10d::Backend {
 public:
  explicit Hccl(c10::intrusive_ptr<c10d::Backend> gloo)
      : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "hccl"; }
  bool supportsCoalescing() const override { return false; }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    auto cpu = start(tensors);
    return done(gloo_->broadcast(cpu, opts), c10d::OpType::BROADCAST, tensors);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    auto cpu = start(tensors);
    return done(gloo_->allreduce(cpu, opts), c10d::OpType::ALLREDUCE, tensors);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    auto cpu = start(tensors);
    return done(gloo_->allreduce_coalesced(cpu, opts), c10d::OpType::ALLREDUCE_COALESCED, tensors);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    auto cpu = start(tensors);
    return done(gloo_->reduce(cpu, opts), c10d::OpType::REDUCE, tensors);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    auto in = start(inputs);
    auto out = aliases(outputs);
    return done(gloo_->allgather(out, in, opts), c10d::OpType::ALLGATHER, outputs.at(0));
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override {
    auto in = start({input}).at(0);
    auto out = on_cpu(output);
    return done(gloo_->_allgather_base(out, in, opts), c10d::OpType::_ALLGATHER_BASE, {output});
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    auto in = start(inputs);
    auto out = aliases(outputs);
    return done(gloo_->gather(out, in, opts), c10d::OpType::GATHER, outputs.empty() ? Tensors{} : outputs.at(0));
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override {
    auto out = start(outputs);
    auto in = aliases(inputs);
    return done(gloo_->scatter(out, in, opts), c10d::OpType::SCATTER, outputs);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) override {
    auto out = start(outputs);
    auto in = aliases(inputs);
    return done(gloo_->reduce_scatter(out, in, opts), c10d::OpType::REDUCE_SCATTER, outputs);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    auto in = start({input}).at(0);
    auto out = on_cpu(output);
    return done(gloo_->_reduce_scatter_base(out, in, opts), c10d::OpType::_REDUCE_SCATTER_BASE, {output});
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override {
    auto in = start({input}).at(0);
    auto out = on_cpu(output);
    return done(gloo_->alltoall_base(out, in, output_sizes, input_sizes, opts), c10d::OpType::ALLTOALL_BASE, {output});
  }
  // Gloo has no list form: every pair is one point-to-point message.
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    auto in = start(inputs);
    auto out = aliases(outputs);
    std::vector<WorkPtr> pending;
    for (int rank = 0; rank < getSize(); ++rank) {
      if (rank == getRank()) {
        out.at(rank).copy_(in.at(rank));
        continue;
      }
      Tensors sent{in.at(rank)}, received{out.at(rank)};
      pending.push_back(gloo_->send(sent, rank, 0));
      pending.push_back(gloo_->recv(received, rank, 0));
    }
    wait_without_gil([&pending] {
      for (auto& work : pending) work->wait();
    });
    return c10::make_intrusive<DoneWork>(c10d::OpType::ALLTOALL, outputs);
  }
  WorkPtr send(Tensors& tensors, int rank, int tag) override {
    auto cpu = start(tensors);
    return done(gloo_->send(cpu, rank, tag), c10d::OpType::SEND, tensors);
  }
  WorkPtr recv(Tensors& tensors, int rank, int tag) override {
    auto cpu = start(tensors);
    return done(gloo_->recv(cpu, rank, tag), c10d::OpType::RECV, tensors);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    auto cpu = start(tensors);
    return done(gloo_->recvAnysource(cpu, tag), c10d::OpType::RECVANYSOURCE, tensors);
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return done(gloo_->barrier(opts), c10d::OpType::BARRIER, {});
  }

 private:
  static Tensors start(const Tensors& tensors) {
    npu::refuse_in_capture("A collective over gloo");
    npu::enqueue();
    return aliases(tensors);
  }
  static WorkPtr done(const WorkPtr& work, c10d::OpType type, const Tensors& outputs) {
    wait_without_gil([&work] { work->wait(); });
    return c10::make_intrusive<DoneWork>(type, outputs);
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
};

py::dict usage(int chip) {
  npu::Usage u = npu::usage(chip);
  py::dict out;
  out["allocated"] = u.allocated;
  out["allocated_peak"] = u.allocated_peak;
  out["reserved"] = u.reserved;
  out["reserved_peak"] = u.reserved_peak;
  out["allocations"] = u.allocations;
  out["frees"] = u.frees;
  out["out_of_memory"] = u.out_of_memory;
  return out;
}

py::dict clock_now() {
  npu::Clock c = npu::clock_now();
  py::dict out;
  out["queued"] = c.queued;
  out["completed"] = c.completed;
  out["waits"] = c.waits;
  out["device_to_host"] = c.device_to_host;
  out["host_to_device"] = c.host_to_device;
  return out;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  npu::set_raise(&raise_python);
  m.def("set_errors", [](py::object error, py::object memory_error) {
    error_class = error.release().ptr();
    memory_error_class = memory_error.release().ptr();
  });
  m.def("configure", &npu::configure);
  m.def("chips", &npu::chips);
  m.def("memory_bytes", &npu::memory_bytes);
  m.def("free_bytes", &npu::free_bytes);
  m.def("usage", &usage);
  m.def("empty_cache", &npu::empty_cache);
  m.def("reset_peak", &npu::reset_peak);
  m.def("current_chip", &npu::current_chip);
  m.def("set_current_chip", &npu::set_current_chip);

  m.def("to_cpu_alias", &npu::to_cpu_alias);
  m.def("adopt_from_cpu", &npu::adopt_from_cpu);
  m.def("set_upload_race", &npu::set_upload_race);
  m.def("default_generator", [](int chip) { return npu::default_generator(chip); });

  m.def("enqueue", &npu::enqueue, Release());
  m.def("position", &npu::position);
  m.def("synchronize", &npu::synchronize, Release());
  m.def("synchronize_until", &npu::synchronize_until, Release());
  m.def("query", &npu::query, Release());
  m.def("clock", &clock_now);
  m.def("fail", &npu::fail);
  m.def("failed", &npu::failed);
  m.def("current_stream", &npu::current_stream);
  m.def("set_current_stream", &npu::set_current_stream);
  m.def("new_stream", &npu::new_stream);

  py::class_<npu::Recording, std::shared_ptr<npu::Recording>>(m, "Recording")
      .def("replay", [](const npu::Recording& self) { npu::replay(self); }, Release())
      .def_property_readonly("steps", [](const npu::Recording& self) { return self.steps.size(); });
  m.def("capturing", &npu::capturing);
  m.def("begin_capture", &npu::begin_capture);
  m.def("end_capture", &npu::end_capture);
  m.def("refuse_in_capture", [](const std::string& what) { npu::refuse_in_capture(what.c_str()); });
  m.def("record", [](py::object step) { npu::record(held(std::move(step))); });

  py::class_<Hccl, c10d::Backend, c10::intrusive_ptr<Hccl>>(m, "Hccl").def(py::init<c10::intrusive_ptr<c10d::Backend>>());
}
