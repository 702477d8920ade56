package process

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
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
	// restInterval is how long a process makes little garbage before less of it may gather.
	restInterval = 5 * time.Second
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
	now := read()
	(&collector{percent: mostGarbage, since: now, looked: now}).start()
}

// collector adjusts the percentage after each collection. When the process has come to rest
// it lowers it and gives back what is free: else what gathered in a burst would stay for minutes,
// as the runtime collects after two at the latest, and keeps what it needed before its last
// collection.
type collector struct {
	mu      sync.Mutex
	percent int     // now
	since   reading // at the last collection; the next one adjusts for what came after it
	looked  reading // at the last look, or the last collection since
	lowered time.Time
	rest    *time.Timer
}

// reading is what the runtime says of the heap: the bytes in use after the last collection, and
// those that were allocated so far.
type reading struct {
	at              time.Time
	live, allocated uint64
}

func read() reading {
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(heap)
	return reading{time.Now(), heap[0].Value.Uint64(), heap[1].Value.Uint64()}
}

// garbage is how much may gather, given an earlier reading.
func (r reading) garbage(before reading) int {
	took := max(r.at.Sub(before.at), time.Millisecond)
	return garbageOf(r.live, float64(r.allocated-before.allocated)/took.Seconds())
}

// start needs no goroutine that somebody would have to end.
func (c *collector) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = time.AfterFunc(restInterval, func() {
		if c.look(read()) {
			debug.FreeOSMemory() // it also collects
		}
	})
	c.awaitCollection()
}

// awaitCollection adjusts the percentage after each collection: the finalizer of a new
// object runs after the next one.
func (c *collector) awaitCollection() {
	type sentinel struct{ _ *byte } // a pointer, or the runtime would keep it beside others
	runtime.SetFinalizer(new(sentinel), func(*sentinel) {
		c.collected(read())
		c.awaitCollection()
	})
}

func (c *collector) collected(r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(r.garbage(c.since))
	c.since, c.looked = r, r
	c.rest.Reset(restInterval)
}

// look lowers the percentage if so little was allocated since the last look, or the last
// collection, that less than half is enough, and reports whether it did. The collections that
// follow look through scanRate bytes a second at most, as all others do.
func (c *collector) look(r reading) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	percent, before := r.garbage(c.looked), c.looked
	c.looked = r
	c.rest.Reset(restInterval)
	if percent >= c.percent/2 || r.at.Sub(c.lowered).Seconds()*scanRate < float64(r.live) {
		return false
	}
	c.set(percent)
	c.since, c.lowered = before, r.at
	return true
}

func (c *collector) set(percent int) {
	if percent != c.percent {
		debug.SetGCPercent(percent)
		c.percent = percent
	}
}

// garbageOf is how much garbage may gather while live bytes are in use and so many bytes
// a second are allocated, in percent of what is in use (docs/adr/0051-garbage.md).
func garbageOf(live uint64, rate float64) int {
	inUse := float64(max(live, 1))
	most := max(garbageBudget, inUse/2)
	budget := min(most, max(idleBudget, inUse*rate/scanRate))
	return int(min(mostGarbage, max(1, 100*budget/inUse)))
}

// Memory is the machine's memory in bytes, or the limit of the container or of the control
// group that the process is in, if that is less; 0 if none is known.
func Memory() int64 {
	groups, _ := os.ReadFile("/proc/self/cgroup") // it is not there on other systems than Linux
	return memory("/proc/meminfo", limitFiles("/sys/fs/cgroup", string(groups))...)
}

// limitFiles are where the limits on memory are of the control groups that a process is in, by
// its lines of /proc/self/cgroup, of the groups around those, and of root: a container sees its
// own group there, whatever its lines say.
func limitFiles(root, groups string) (files []string) {
	for line := range strings.Lines("0::/\n0:memory:/\n" + groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		hierarchy, name := "", "memory.max" // version 2
		switch f[1] {
		case "":
		case "memory": // version 1
			hierarchy, name = "memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + f[2]); ; group = path.Dir(group) {
			files = append(files, filepath.Join(root, hierarchy, group, name))
			if group == "/" {
				break
			}
		}
	}
	return files
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
