package worker

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"

	"flightline/shared/registry"
)

// Where Linux tells of the machine. Elsewhere these facts are left out.
const (
	procCPU    = "/proc/cpuinfo"
	procMemory = "/proc/meminfo"
)

// cgroupMemory is where a container finds its memory limit: cgroup v2, v1.
var cgroupMemory = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// hostFacts says what machine this is, as far as it can be found out. CPUs and
// memory are those of the container, if one limits them.
func hostFacts(ctx context.Context, log *slog.Logger) registry.Host {
	// GOMAXPROCS respects a container's CPU limit; NumCPU does not.
	h := registry.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0)}
	h.Name, _ = os.Hostname() // "" says that it is unknown
	h.CPUModel = fact(procCPU, "model name")
	if kb, err := strconv.ParseUint(strings.TrimSuffix(fact(procMemory, "MemTotal"), " kB"), 10, 64); err == nil {
		h.MemoryBytes = memoryOf(kb<<10, cgroupMemory)
	}
	h.GPUs, h.Driver = gpus(ctx, log)
	return h
}

// fact is the value of the first line "key : value" of a file of /proc, or "".
func fact(name, key string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// memoryOf is the machine's memory, or the container's limit if that is less.
func memoryOf(total uint64, limitFiles []string) uint64 {
	for _, name := range limitFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		// "max", or on v1 a huge number, is no limit.
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
			total = min(total, n)
		}
	}
	return total
}
