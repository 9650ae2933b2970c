#include "core/codegen/cpu/compiler.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "core/codegen/cpu/emit.h"
#include "core/codegen/cpu/link.h"
#include "core/codegen/cpu/machine.h"
#include "core/codegen/cpu/target.h"
#include "core/support/error.h"

namespace braze::codegen {

namespace {

using Clock = std::chrono::steady_clock;

struct Compiled {  // cached while a CompiledKernel holds it
    std::weak_ptr<LinkedCode> code;
    loops::KernelFn fn = nullptr;
};

// Kernels that somebody holds, by target and canonical text.
class Cache {
  public:
    bool find(const std::string& key, CompiledKernel& out) {
        std::lock_guard lock(mutex_);
        auto it = entries_.find(key);
        if (it == entries_.end()) return false;
        std::shared_ptr<LinkedCode> code = it->second.code.lock();
        if (!code) {
            entries_.erase(it);
            return false;
        }
        out = {it->second.fn, std::move(code)};
        return true;
    }
    void add(const std::string& key, loops::KernelFn fn, const std::shared_ptr<LinkedCode>& code) {
        std::lock_guard lock(mutex_);
        if (entries_.size() >= sweep_at_) {
            std::erase_if(entries_, [](const auto& e) { return e.second.code.expired(); });
            sweep_at_ = std::max<size_t>(1024, 2 * entries_.size());
        }
        entries_[key] = {code, fn};
    }

  private:
    std::mutex mutex_;
    std::unordered_map<std::string, Compiled> entries_;
    size_t sweep_at_ = 1024;
};
Cache& cache() {
    static Cache* c = new Cache;
    return *c;
}

std::string cache_key(const loops::Kernel& k, const CpuTarget& t) {
    std::string key = std::string(isa_name(t.isa)) + " " + t.cpu + " " + t.features + "\n" + loops::canonical(k);
    for (const shapes::Expr& s : k.symbols)  // what is known of the sizes is used, and is not part of the text
        key += std::to_string(s.range().lo) + ".." + std::to_string(s.range().hi) + " ";
    return key;
}

struct Job {
    const loops::Kernel* kernel;
    std::string key;
    std::string symbol;
    CompiledKernel result;
    std::pair<std::string, std::string> text;
};

// Times of one worker, added up under a lock.
struct Times {
    double ir = 0, opt = 0, code = 0;
};

double since(Clock::time_point& start) {
    Clock::time_point now = Clock::now();
    double s = std::chrono::duration<double>(now - start).count();
    start = now;
    return s;
}

void compile_group(Job* first, Job* last, Machine& machine, Times& times, bool want_text) {
    Clock::time_point clock = Clock::now();
    llvm::LLVMContext context;
    context.setDiscardValueNames(!want_text);
    llvm::Module module("kernels", context);
    machine.prepare(module);
    for (Job* j = first; j != last; ++j) {
        emit_kernel(*j->kernel, j->symbol, machine.target(), module);
        llvm::Function* f = module.getFunction(j->symbol);
        std::string problem;
        llvm::raw_string_ostream stream(problem);
        if (llvm::verifyFunction(*f, &stream))
            throw InternalError("generated code of kernel " + j->kernel->name + " is malformed: " + problem);
    }
    times.ir += since(clock);
    machine.optimise(module);
    times.opt += since(clock);
    if (want_text) {
        std::string ir;
        llvm::raw_string_ostream stream(ir);
        module.print(stream, nullptr);
        for (Job* j = first; j != last; ++j) j->text.first = ir;
        std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
        std::string assembly = machine.assembly(*copy);
        for (Job* j = first; j != last; ++j) j->text.second = assembly;
        since(clock);
    }
    std::shared_ptr<LinkedCode> code = link_object(machine.object_code(module));
    for (Job* j = first; j != last; ++j) {
        auto fn = reinterpret_cast<loops::KernelFn>(code->symbol(j->symbol));
        BRAZE_CHECK(fn, "linked code lacks kernel " + j->symbol);
        j->result = {fn, code};
        cache().add(j->key, fn, code);
    }
    times.code += since(clock);
}

}  // namespace

std::vector<CompiledKernel> compile(const std::vector<loops::Kernel>& kernels, const CpuTarget& target, int threads,
                                    CompileStats* stats, std::vector<std::pair<std::string, std::string>>* dump) {
    std::vector<CompiledKernel> results(kernels.size());
    std::vector<Job> jobs;
    std::vector<int> job_of(kernels.size(), -1);
    std::unordered_map<std::string, int> known;  // a job, or -1 - an earlier kernel that the cache had
    CompileStats total;
    total.kernels = static_cast<int>(kernels.size());
    for (size_t i = 0; i < kernels.size(); ++i) {
        std::string key = cache_key(kernels[i], target);
        auto it = known.find(key);
        if (it != known.end()) {
            if (it->second >= 0)
                job_of[i] = it->second;
            else
                results[i] = results[static_cast<size_t>(-1 - it->second)];
            continue;
        }
        ++total.unique;
        if (!dump && cache().find(key, results[i])) {
            ++total.cached;
            known.emplace(key, -1 - static_cast<int>(i));
            continue;
        }
        job_of[i] = static_cast<int>(jobs.size());
        known.emplace(key, job_of[i]);
        jobs.push_back({&kernels[i], key, "k" + std::to_string(jobs.size()), {}, {}});
    }
    if (!jobs.empty()) {
        // A few kernels per module spread the fixed cost of LLVM's pass managers; a dump shows each on its own.
        size_t workers = std::clamp<size_t>(static_cast<size_t>(std::max(threads, 1)), 1, jobs.size());
        size_t group = dump ? 1 : std::clamp<size_t>(jobs.size() / (2 * workers), 1, 8);
        std::atomic<size_t> next{0};
        std::mutex mutex;
        std::exception_ptr error;
        auto work = [&] {
            Times times;
            try {
                MachineHandle machine = borrow_machine(target);
                for (;;) {
                    size_t at = next.fetch_add(group);
                    if (at >= jobs.size()) break;
                    Job* first = jobs.data() + at;
                    compile_group(first, jobs.data() + std::min(at + group, jobs.size()), *machine, times,
                                  dump != nullptr);
                }
            } catch (...) {
                std::lock_guard lock(mutex);
                if (!error) error = std::current_exception();
                next = jobs.size();
            }
            std::lock_guard lock(mutex);
            total.seconds_ir += times.ir;
            total.seconds_opt += times.opt;
            total.seconds_code += times.code;
        };
        std::vector<std::thread> helpers;
        for (size_t t = 1; t < workers; ++t) helpers.emplace_back(work);
        work();
        for (std::thread& t : helpers) t.join();
        if (error) std::rethrow_exception(error);
    }
    if (dump) dump->assign(kernels.size(), {});
    for (size_t i = 0; i < kernels.size(); ++i) {
        if (job_of[i] < 0) continue;
        results[i] = jobs[static_cast<size_t>(job_of[i])].result;
        if (dump) (*dump)[i] = jobs[static_cast<size_t>(job_of[i])].text;
    }
    if (stats) *stats = total;
    return results;
}

}  // namespace braze::codegen
