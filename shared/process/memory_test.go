package process

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

func TestMemoryIsTheContainersIfItIsLess(t *testing.T) {
	const info = "MemTotal:        2048 kB\nMemFree:         100 kB\n"
	for name, tt := range map[string]struct {
		info, limit string
		want        int64
	}{
		"the machine's":            {info, "max\n", 2 << 20},
		"the container's":          {info, "4096\n", 4096},
		"a limit that is none":     {info, "9223372036854771712\n", 2 << 20},
		"a limit of nonsense":      {info, "much", 2 << 20},
		"only a limit":             {"", "4096\n", 4096},
		"nothing":                  {"", "", 0},
		"nonsense":                 {"MemTotal: much\n", "-1", 0},
		"more than an int64 holds": {"MemTotal: 9223372036854775807 kB\n", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			infoFile, limitFile := filepath.Join(dir, "info"), filepath.Join(dir, "limit")
			for file, text := range map[string]string{infoFile: tt.info, limitFile: tt.limit} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := memory(infoFile, filepath.Join(dir, "absent"), limitFile); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestLimitsOfControlGroups(t *testing.T) {
	roots := []string{"/r/memory.max", "/r/memory/memory.limit_in_bytes"}
	for groups, want := range map[string][]string{
		"": nil,
		"0::/system.slice/flightline.service\n": {
			"/r/system.slice/flightline.service/memory.max", "/r/system.slice/memory.max", "/r/memory.max",
		},
		"9:name=systemd:/\n4:memory:/a/b\n3:cpu,cpuacct:/c\n": {
			"/r/memory/a/b/memory.limit_in_bytes", "/r/memory/a/memory.limit_in_bytes", "/r/memory/memory.limit_in_bytes",
		},
		"0::/../../a:b\n":        {"/r/a:b/memory.max", "/r/memory.max"}, // of a namespace around this one
		"nonsense\n\n1:memory\n": nil,
	} {
		if got := limitFiles("/r", groups); !slices.Equal(got, append(slices.Clone(roots), want...)) {
			t.Errorf("%q: got %q, want %q and %q", groups, got, roots, want)
		}
	}
}

func TestTuneGCLeavesWhatTheUserSet(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	TuneGC("100", "")
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("with GOGC=100: got %d", got)
	}
	TuneGC("", "1GiB")
	if p, l := debug.SetGCPercent(100), debug.SetMemoryLimit(-1); p != mostGarbage || l != math.MaxInt64 {
		t.Errorf("with GOMEMLIMIT: got %d percent and a limit of %d, want %d and the user's", p, l, mostGarbage)
	}
	TuneGC("", "")
	if l := debug.SetMemoryLimit(-1); l == math.MaxInt64 {
		t.Skip("this system does not say how much memory it has")
	} else if l < 1<<20 {
		t.Errorf("got a limit of %d bytes", l)
	}
}

func TestGarbageIsBoundedWhereMuchIsInUse(t *testing.T) {
	const busy = 64 << 20
	for live, want := range map[uint64]int{0: 400, 5 << 20: 400, 32 << 20: 400, 64 << 20: 200, 128 << 20: 100, 256 << 20: 50, 4 << 30: 50} {
		if got := garbageOf(live, busy); got != want {
			t.Errorf("%d bytes in use: got %d percent, want %d", live, got, want)
		}
	}
}

func TestGarbageIsBoundedWhereLittleIsMade(t *testing.T) {
	const live = 64 << 20
	for rate, want := range map[float64]int{0: 25, 1 << 20: 25, 4 << 20: 50, 16 << 20: 200, 1 << 40: 200} {
		if got := garbageOf(live, rate); got != want {
			t.Errorf("%.0f bytes a second: got %d percent, want %d", rate, got, want)
		}
	}
	if got := garbageOf(8<<30, 0); got != 1 {
		t.Errorf("8 GiB in use: got %d percent, want 1: 0 would collect all the time", got)
	}
}

func TestTheCollectorIsAdjustedAfterACollection(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	(&collector{percent: 100, since: read()}).start()
	for deadline := time.Now().Add(time.Minute); ; {
		runtime.GC()
		if got := debug.SetGCPercent(100); got == mostGarbage {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a collection: got 100 percent still, want %d", mostGarbage)
		}
	}
}

func TestTheCollectorLeavesLessGarbageAtRest(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	const live, burst = 64 << 20, 1 << 30
	began := time.Now()
	at := func(after time.Duration, allocated uint64) reading {
		return reading{at: began.Add(after), live: live, allocated: allocated}
	}
	c := &collector{percent: 200, since: at(0, 0), looked: at(0, 0), rest: time.NewTimer(time.Hour)}
	c.rest.Stop()
	look := func(r reading) { c.look(r) }
	for _, step := range []struct {
		what string
		do   func(reading)
		r    reading
		want int
	}{
		{"a look that still sees the burst", look, at(5*time.Second, burst), 200},
		{"the first one that does not", look, at(10*time.Second, burst+1<<20), 25},
		{"the collection that follows", c.collected, at(11*time.Second, burst+2<<20), 25},
		{"one in the next burst", c.collected, at(12*time.Second, 2*burst), 200},
		{"a rest too soon after the last one for another collection", look, at(17*time.Second, 2*burst), 200},
		{"the rest goes on", look, at(22*time.Second, 2*burst), 25},
		{"much garbage: only a collection raises it", look, at(27*time.Second, 3*burst), 25},
	} {
		step.do(step.r)
		if c.percent != step.want {
			t.Errorf("%s: got %d percent, want %d", step.what, c.percent, step.want)
		}
	}
}
