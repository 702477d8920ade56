// Package host says what machine this process runs on: its processor, memory,
// disk, addresses and accelerators, as far as they can be found out. What is
// not known is left out; nothing here fails.
package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"

	"flightline/shared/pod"
	"flightline/shared/process"
)

const (
	gigabyte = 1 << 30
	// cgroups is where Linux shows a container's limits.
	cgroups = "/sys/fs/cgroup"
	// nvidia is where NVIDIA's driver shows itself without its library.
	nvidia = "/proc/driver/nvidia"
)

// Look says what machine this is. VCPUs and memory are those of the container,
// if one limits them. That there are no GPUs, or no library that knows them,
// is logged at level debug at most; a nil log is silence.
func Look(ctx context.Context, log *slog.Logger) pod.Machine {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	m := pod.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: processor(ctx), Addresses: addresses()}
	m.Hostname, _ = os.Hostname() // "" says that it is unknown
	// NumCPU respects the affinity of the process, which the quota does not.
	m.VCPUs = least(float64(runtime.NumCPU()), cpusIn(cgroups))
	if known := process.Memory(); known > 0 {
		m.MemoryGB = inGB(float64(known))
	} else if memory, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		m.MemoryGB = inGB(float64(memory.Total))
	}
	if usage, err := disk.UsageWithContext(ctx, here()); err == nil {
		m.DiskGB = inGB(float64(usage.Total))
	}
	m.GPUs, m.GPUDriver = GPUs(ctx, log)
	return m
}

// GPUs are the machine's accelerators now, with what is known of their health, and
// the version of NVIDIA's driver, else of AMD's. That there are none is no error; a nil
// log is silence.
func GPUs(ctx context.Context, log *slog.Logger) (found []pod.GPU, driver string) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	found, driver = nvidiaGPUs(ctx, log)
	cards, addresses := amdIn(drm, amdgpu)
	askAMD(ctx, cards, addresses, log)
	if driver == "" && len(cards) > 0 {
		driver = cards[0].Driver
	}
	return append(found, cards...), driver
}

// ID names this machine, the same after a restart and for every program on it,
// and reveals nothing else about it. It is "" where the machine has no such
// thing, as most containers.
func ID() string { return idFrom("/etc/machine-id", "/var/lib/dbus/machine-id") }

func idFrom(files ...string) string {
	for _, name := range files {
		text, err := os.ReadFile(name)
		if id := strings.TrimSpace(string(text)); err == nil && len(id) == 32 {
			// The machine's own id is meant to stay on it.
			sum := sha256.Sum256([]byte("flightline machine " + id))
			return hex.EncodeToString(sum[:10])
		}
	}
	return ""
}

func processor(ctx context.Context) pod.CPU {
	var c pod.CPU
	if all, err := cpu.InfoWithContext(ctx); err == nil && len(all) > 0 {
		c.Model, c.Vendor = strings.TrimSpace(all[0].ModelName), all[0].VendorID
	}
	c.Cores, _ = cpu.CountsWithContext(ctx, false) // 0 says that it is unknown
	c.Threads, _ = cpu.CountsWithContext(ctx, true)
	return c
}

// addresses are those that others may reach.
func addresses() []string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var found []string
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			found = append(found, n.IP.String())
		}
	}
	return found
}

// here is a folder of the file system that the worker runs in.
func here() string {
	if dir, err := os.Getwd(); err == nil {
		return dir
	}
	return string(filepath.Separator)
}

// least is the limit if there is one and it is less.
func least(all, limit float64) float64 {
	if limit > 0 {
		return min(all, limit)
	}
	return all
}

// inGB is bytes in units of 2^30, to a hundredth.
func inGB(bytes float64) float64 { return math.Round(bytes/gigabyte*100) / 100 }
