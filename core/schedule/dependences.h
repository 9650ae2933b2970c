// An acyclic graph of things to be done (clusters and Calls), with its transitive closure kept up to date.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace braze::schedule {

class Dependences {
  public:
    int add();
    // `item` has to come after `on`. They must not depend on each other the other way round.
    void depend(int item, int on);
    // `item` has to come after `on`, directly or not.
    bool depends(int item, int on) const { return test(items_[static_cast<size_t>(item)].all, on); }
    // Would adding direct dependences `extra` to `item` make a cycle?
    bool allows(int item, const std::vector<int>& extra) const;
    // May a and b become one item? Not if a third one lies between them.
    bool mergeable(int a, int b) const;
    void merge(int into, int from);
    const std::vector<int>& direct(int item) const { return items_[static_cast<size_t>(item)].direct; }

  private:
    using Bits = std::vector<uint64_t>;
    struct Item {
        std::vector<int> direct;
        Bits all;
    };
    static bool test(const Bits& b, int i) {
        const size_t w = static_cast<size_t>(i) / 64;
        return w < b.size() && (b[w] >> (static_cast<size_t>(i) % 64) & 1U) != 0;
    }
    static void set(Bits& b, int i);
    static void clear(Bits& b, int i);
    static void unite(Bits& a, const Bits& b);

    std::vector<Item> items_;
};

}  // namespace braze::schedule
