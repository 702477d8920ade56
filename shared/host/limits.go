package host

import (
	"path/filepath"
	"strconv"
	"strings"
)

// cpusIn reads how many CPUs this process's control group has, which a container
// sees at the root: of version 2, or of version 1. 0 is no limit.
func cpusIn(root string) float64 {
	if text := line(filepath.Join(root, "cpu.max")); text != "" { // "<quota> <period>"
		quota, period, _ := strings.Cut(text, " ")
		return share(parsed(quota), parsed(period))
	}
	return share(number(filepath.Join(root, "cpu", "cpu.cfs_quota_us")), number(filepath.Join(root, "cpu", "cpu.cfs_period_us")))
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
