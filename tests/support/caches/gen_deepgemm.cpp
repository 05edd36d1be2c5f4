// usage: gen_deepgemm PACKAGE normal|some|more
//
// Calls the wheel's own DeepJIT (deep_jit::Runtime<CUDA>) with kernels instantiated as DeepGEMM
// instantiates them; nothing is loaded or launched. A line of stdout per kernel: HIT, MISS or ERROR,
// seconds, the entry's directory or what went wrong. Built and run by gen_deepgemm.py.

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>

extern "C" {  // Stand-ins: the device is an H100, sm_90 with 132 SMs.
cudaError_t CUDARTAPI cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaFree(void*) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    properties->major = 9;
    properties->multiProcessorCount = 132;
    return cudaSuccess;
}
const char* CUDARTAPI cudaGetErrorName(cudaError_t) { return "none"; }
const char* CUDARTAPI cudaGetErrorString(cudaError_t) { return "none"; }
}
#include <deep_jit/backend/cuda/backend.hpp>

struct Job {
    std::string name, source;
};

static std::string instantiate(const std::string& header, const std::string& kernel) {
    return "#include <deep_gemm/impls/" + header + ">\n\nusing namespace deep_gemm;\n\n" +
           "static void __instantiate_kernel() {\n    auto ptr = reinterpret_cast<void*>(&" + kernel +
           ");\n};\n";
}

static Job transpose(int rows, int scales) {
    const auto shape = std::to_string(rows) + ", " + std::to_string(scales);
    return {"transpose_fp32",
            instantiate("smxx_layout.cuh", "transpose_fp32<512, " + shape + ", 64>")};
}

static Job gemm(int columns, int depth) {
    const std::string swizzle = columns % 64 ? "64" : "128";
    return {"sm90_bf16_gemm",
            instantiate("sm90_bf16_gemm.cuh",
                        "sm90_bf16_gemm_impl<cute::UMMA::Major::K, cute::UMMA::Major::K, 0, 4096, " +
                            std::to_string(depth) + ", 1, 128, " + std::to_string(columns) +
                            ", 64, 128, 128, " + swizzle + ", 4, 128, 256, 1, false, 132, " +
                            "GemmType::Normal, false, cutlass::bfloat16_t>")};
}

static std::vector<Job> choose(const std::string& which) {
    std::vector<Job> jobs;
    if (which == "more") {
        for (int rows : {32, 64, 128})
            for (int scales : {8, 24, 32, 48}) jobs.push_back(transpose(rows, scales));
        return jobs;
    }
    for (int rows : {32, 64, 128})
        for (int scales : {16, 56}) jobs.push_back(transpose(rows, scales));
    if (which == "normal")
        for (int columns : {64, 128, 160})
            for (int depth : {2048, 7168}) jobs.push_back(gemm(columns, depth));
    return jobs;
}

static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int main(int, char** argv) {
    const std::string package = argv[1];
    const deep_jit::Config config(package, "DG", "signature", {package + "/include"},
                                  {"deep_gemm/"});
    deep_jit::Runtime<deep_jit::CUDA> runtime(config);
    for (const auto& [name, source] : choose(argv[2])) {
        const auto key = runtime.cache_key(source, runtime.default_compiler_options);
        const auto entry = name + "." + key;
        bool hit = false;
        for (const auto& path : runtime.disk_cache.paths)
            hit |= std::filesystem::exists(path / "cache" / entry / deep_jit::kCommitFileName);
        const auto began = std::chrono::steady_clock::now();
        try {
            const auto found = runtime.compile_without_load(name, source);
            const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
            std::printf("%s %.3f %s\n", hit ? "HIT" : "MISS", spent.count(), found.c_str());
        } catch (const std::exception& error) {
            std::printf("ERROR 0 %s: %s\n", entry.c_str(), first_line(error.what()).c_str());
        }
        std::fflush(stdout);
    }
}
