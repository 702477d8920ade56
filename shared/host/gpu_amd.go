package host

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"flightline/shared/pod"
)

const (
	// drm is where Linux shows graphics cards, amdgpu where the driver of AMD's is.
	drm    = "/sys/class/drm"
	amdgpu = "/sys/module/amdgpu"
	// amdVendor is AMD's number on the PCI bus.
	amdVendor = "0x1002"
	// unnamedAMD is the name of a card that has none.
	unnamedAMD = "AMD GPU"
)

// amdIn reads what the driver of AMD's cards shows. A card without a unique id, as
// those within a processor are, is left out: it could not be claimed. addresses are those
// of the cards on the PCI bus, in the same order.
func amdIn(cards, driver string) (found []pod.GPU, addresses []string) {
	devices, _ := filepath.Glob(filepath.Join(cards, "card[0-9]*", "device")) // the pattern is good
	version := line(filepath.Join(driver, "version"))
	for _, dir := range devices {
		id := strings.TrimPrefix(line(filepath.Join(dir, "unique_id")), "0x")
		if line(filepath.Join(dir, "vendor")) != amdVendor || id == "" || strings.Contains(filepath.Base(filepath.Dir(dir)), "-") {
			continue // a "card0-HDMI-A-1" is a connector
		}
		bytes := number(filepath.Join(dir, "mem_info_vram_total"))
		found = append(found, pod.GPU{
			Vendor: pod.AMD, UUID: "GPU-" + id, Name: cmp.Or(line(filepath.Join(dir, "product_name")), unnamedAMD),
			MemoryMB: int(bytes / (1 << 20)), MemoryGB: inGB(bytes), Driver: version,
		})
		where, _ := filepath.EvalSymlinks(dir) // "" says that it is unknown
		addresses = append(addresses, filepath.Base(where))
	}
	return found, addresses
}

// line is the first line of a file, "" if it cannot be read.
func line(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return first
}
