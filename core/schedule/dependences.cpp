#include "core/schedule/dependences.h"

#include <algorithm>

namespace braze::schedule {

void Dependences::set(Bits& b, int i) {
    const size_t w = static_cast<size_t>(i) / 64;
    if (w >= b.size()) b.resize(w + 1, 0);
    b[w] |= uint64_t{1} << (static_cast<size_t>(i) % 64);
}

void Dependences::clear(Bits& b, int i) {
    if (test(b, i)) b[static_cast<size_t>(i) / 64] &= ~(uint64_t{1} << (static_cast<size_t>(i) % 64));
}

void Dependences::unite(Bits& a, const Bits& b) {
    if (a.size() < b.size()) a.resize(b.size(), 0);
    for (size_t i = 0; i < b.size(); ++i) a[i] |= b[i];
}

int Dependences::add() {
    items_.emplace_back();
    return static_cast<int>(items_.size()) - 1;
}

void Dependences::depend(int item, int on) {
    Item& it = items_[static_cast<size_t>(item)];
    if (std::find(it.direct.begin(), it.direct.end(), on) != it.direct.end()) return;
    it.direct.push_back(on);
    if (test(it.all, on)) return;
    Bits more = items_[static_cast<size_t>(on)].all;
    set(more, on);
    unite(it.all, more);
    for (Item& other : items_)
        if (test(other.all, item)) unite(other.all, more);
}

bool Dependences::allows(int item, const std::vector<int>& extra) const {
    return std::none_of(extra.begin(), extra.end(), [&](int e) { return e != item && depends(e, item); });
}

bool Dependences::mergeable(int a, int b) const {
    auto between = [&](int x, int y) {  // something after x and before y
        const auto& d = items_[static_cast<size_t>(y)].direct;
        return std::any_of(d.begin(), d.end(), [&](int e) { return e != x && depends(e, x); });
    };
    return !between(a, b) && !between(b, a);
}

void Dependences::merge(int into, int from) {
    Item& a = items_[static_cast<size_t>(into)];
    Item b = std::move(items_[static_cast<size_t>(from)]);
    items_[static_cast<size_t>(from)] = {};
    for (int d : b.direct)
        if (d != into && std::find(a.direct.begin(), a.direct.end(), d) == a.direct.end()) a.direct.push_back(d);
    std::erase(a.direct, from);
    unite(a.all, b.all);
    clear(a.all, into);
    clear(a.all, from);
    const Bits all = a.all;
    for (size_t i = 0; i < items_.size(); ++i) {
        Item& other = items_[i];
        if (std::find(other.direct.begin(), other.direct.end(), from) != other.direct.end()) {
            std::erase(other.direct, from);
            if (std::find(other.direct.begin(), other.direct.end(), into) == other.direct.end())
                other.direct.push_back(into);
        }
        const bool had = test(other.all, from);
        clear(other.all, from);
        if (had) set(other.all, into);
        if (test(other.all, into)) unite(other.all, all);
    }
}

}  // namespace braze::schedule
