package process

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

const (
	// mostGarbage is how much garbage, in percent of what is in use, may gather
	// before it is collected while little is in use. Our processes have little in use
	// and make much garbage: with Go's own 100 they collect all the time, which
	// costs a tenth of a job.
	mostGarbage = 400
	// garbageBudget bounds the garbage, in bytes: with half of it collecting costs a tenth
	// of a job again. Where more than twice of it is in use the bound is half of that.
	garbageBudget = 128 << 20
	// idleBudget is the least bound. A process that makes little garbage has less than
	// garbageBudget: so much that a collection each time looks through scanRate bytes of
	// what is in use a second, which costs about a hundredth of a core.
	idleBudget = 16 << 20
	scanRate   = 8 << 20
)

// TuneGC has the garbage collector run less often while little is in use, more
// often as more is or as little garbage is made, and as often as it must once the process
// takes half of the memory that it may have. percent and limit are what the user set in GOGC and
// GOMEMLIMIT; that stays as it is, and a GOGC of "" means that nothing was set.
func TuneGC(percent, limit string) {
	if percent != "" {
		return
	}
	if limit == "" {
		all := Memory()
		if all == 0 {
			return // there is nothing to stay within
		}
		debug.SetMemoryLimit(all / 2)
	}
	debug.SetGCPercent(mostGarbage)
	afterCollection(mostGarbage, time.Now(), 0)
}

// afterCollection adjusts the percentage, which is current, after each collection; the
// process had allocated so many bytes at the one before. It needs no goroutine that
// somebody would have to end: the finalizer of a new object runs after the next
// collection.
func afterCollection(current int, before time.Time, allocated uint64) {
	type sentinel struct{ _ *byte } // a pointer, or the runtime would keep it beside others
	runtime.SetFinalizer(new(sentinel), func(*sentinel) {
		heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(heap)
		now, total := time.Now(), heap[1].Value.Uint64()
		took := max(now.Sub(before), time.Millisecond)
		percent := garbageOf(heap[0].Value.Uint64(), float64(total-allocated)/took.Seconds())
		if percent != current {
			debug.SetGCPercent(percent)
		}
		afterCollection(percent, now, total)
	})
}

// garbageOf is how much garbage may gather while live bytes are in use and so many bytes
// a second are allocated, in percent of what is in use (docs/adr/0051-garbage.md).
func garbageOf(live uint64, rate float64) int {
	inUse := float64(max(live, 1))
	most := max(garbageBudget, inUse/2)
	budget := min(most, max(idleBudget, inUse*rate/scanRate))
	return int(min(mostGarbage, max(1, 100*budget/inUse)))
}

// Memory is the machine's memory in bytes, or the container's limit if that is
// less; 0 if neither is known.
func Memory() int64 {
	return memory("/proc/meminfo", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
}

func memory(info string, limits ...string) int64 {
	all := int64(math.MaxInt64)
	if text, err := os.ReadFile(info); err == nil {
		for line := range strings.Lines(string(text)) {
			if kb, ok := strings.CutPrefix(line, "MemTotal:"); ok {
				all = least(all, strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 1<<10)
			}
		}
	}
	for _, name := range limits {
		if text, err := os.ReadFile(name); err == nil {
			all = least(all, strings.TrimSpace(string(text)), 1) // "max", or a huge number, is none
		}
	}
	if all == math.MaxInt64 {
		return 0
	}
	return all
}

// least is n units or all, if that is less or n is no number.
func least(all int64, n string, unit int64) int64 {
	v, err := strconv.ParseInt(n, 10, 64)
	if err != nil || v <= 0 || v > math.MaxInt64/unit {
		return all
	}
	return min(all, v*unit)
}
