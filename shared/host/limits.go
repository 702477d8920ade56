package host

import (
	"path/filepath"
	"strconv"
	"strings"
)

// limits are a container's; 0 is none.
type limits struct{ cpus, memory float64 }

// limitsIn reads the limits of this process's control group, which a container
// sees at the root: of version 2, or of version 1.
func limitsIn(root string) limits {
	var l limits
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		// "max", or on version 1 a huge number, is no limit; the caller takes the least.
		if n := number(filepath.Join(root, name)); n > 0 {
			l.memory = n
			break
		}
	}
	if text := line(filepath.Join(root, "cpu.max")); text != "" { // "<quota> <period>"
		quota, period, _ := strings.Cut(text, " ")
		l.cpus = share(parsed(quota), parsed(period))
		return l
	}
	l.cpus = share(number(filepath.Join(root, "cpu", "cpu.cfs_quota_us")), number(filepath.Join(root, "cpu", "cpu.cfs_period_us")))
	return l
}

func share(quota, period float64) float64 {
	if quota <= 0 || period <= 0 {
		return 0
	}
	return quota / period
}

// number is what a file holds, 0 if it is no number.
func number(name string) float64 { return parsed(line(name)) }

func parsed(text string) float64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return float64(n)
}
