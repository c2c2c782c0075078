// Two sums in progress while each rank computes. Ranks join with a unique id.
//
//     c++ -std=c++17 overlap.cpp -o overlap $(pkg-config --cflags --libs foldwire) -pthread
#include <foldwire.h>

#include <cmath>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int n_ranks = 3;

void check(fwResult result) {
    if (result != FW_SUCCESS) {
        throw std::runtime_error(std::string(fwGetErrorString(result)) + ": " + fwGetLastError());
    }
}

double rank_main(const fwUniqueId &id, int rank) {
    fwComm_t comm;
    check(fwCommInitRank(&comm, n_ranks, id, rank, nullptr));

    std::vector<float> wave(200000);
    std::vector<std::int64_t> counts(100, rank);
    for (std::size_t i = 0; i < wave.size(); ++i) {
        wave[i] = std::sin(1e-3f * static_cast<float>(i + static_cast<std::size_t>(rank)));
    }
    // The error of each operand is at most 0.001, so that of the sum at most 0.003. Integers are
    // always exact.
    fwPlan plan;
    check(fwPlanParse("abs:1e-3", &plan));
    std::vector<fwRequest_t> requests(2);
    check(fwAllReduce(wave.data(), wave.data(), wave.size(), FW_FLOAT32, FW_SUM, &plan, comm,
                      &requests[0]));
    check(fwAllReduce(counts.data(), counts.data(), counts.size(), FW_INT64, FW_SUM, nullptr, comm,
                      &requests[1]));
    // Computation of this rank. fwTest advances the calls now and then.
    double own = 0;
    for (int step = 0; step < 100; ++step) {
        own += std::sqrt(static_cast<double>(step));
        std::int32_t is_done = 0;
        check(fwTest(&requests[0], &is_done));
    }
    check(fwWaitAll(requests.size(), requests.data()));

    for (std::size_t i = 0; i < wave.size(); ++i) {
        double sum = 0;
        for (std::size_t r = 0; r < n_ranks; ++r) {
            sum += std::sin(1e-3f * static_cast<float>(i + r));
        }
        if (std::abs(wave[i] - sum) > n_ranks * 1e-3 + 1e-6) {
            throw std::runtime_error("beyond the bound");
        }
    }
    check(fwCommDestroy(comm));
    return own + static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{}));
}

} // namespace

int main() {
    fwUniqueId id;
    check(fwGetUniqueId(&id));
    std::vector<std::thread> threads;
    std::vector<double> results(n_ranks);
    for (int rank = 0; rank < n_ranks; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                results[static_cast<std::size_t>(rank)] = rank_main(id, rank);
            } catch (const std::exception &error) {
                std::cerr << "rank " << rank << ": " << error.what() << '\n';
                std::exit(1);
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (int rank = 0; rank < n_ranks; ++rank) {
        std::cout << "rank " << rank << ": " << results[static_cast<std::size_t>(rank)] << '\n';
    }
}
