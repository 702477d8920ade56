package api

import "fmt"

// Size is a number of bytes for people: "512 B", "1.5 KiB", "400 MiB".
func Size[N int | int64 | uint64](n N) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	size, i := float64(n)/1024, 0
	for ; size >= 1024 && i+1 < len(units); i++ {
		size /= 1024
	}
	if size >= 100 {
		return fmt.Sprintf("%.0f %s", size, units[i])
	}
	return fmt.Sprintf("%.1f %s", size, units[i])
}
