package host

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"flightline/shared/pod"
)

var driverVersion = regexp.MustCompile(`\b\d+(\.\d+)+\b`)

// gpusIn reads what NVIDIA's driver shows without its library: all but the
// memory. A machine without the driver has none.
func gpusIn(dir string) (found []pod.GPU, driver string) {
	cards, _ := filepath.Glob(filepath.Join(dir, "gpus", "*", "information")) // the pattern is good
	for _, card := range cards {
		found = append(found, pod.GPU{Vendor: pod.NVIDIA, Name: fact(card, "Model"), UUID: fact(card, "GPU UUID")})
	}
	driver = driverVersion.FindString(fact(filepath.Join(dir, "version"), "NVRM version"))
	for i := range found {
		found[i].Driver = driver
	}
	return found, driver
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
