package netguard_test

import (
	"errors"
	"fmt"
	"time"

	"flightline/shared/netguard"
)

// A connection to an address that a caller named is refused on this machine and
// in private networks, unless the operator allows the network.
func ExampleDialer() {
	_, err := netguard.Dialer(nil, time.Second).Dial("tcp", "127.0.0.1:80")
	fmt.Println(errors.Is(err, netguard.ErrAddress))
	_, err = netguard.Dialer(nil, time.Second).Dial("tcp", "169.254.169.254:80") // the metadata of clouds
	fmt.Println(errors.Is(err, netguard.ErrAddress))
	// Output:
	// true
	// true
}

func ExampleParseNetworks() {
	networks, err := netguard.ParseNetworks("10.1.0.0/16,fd00:1::/32")
	fmt.Println(networks, err)
	// Output: [10.1.0.0/16 fd00:1::/32] <nil>
}
