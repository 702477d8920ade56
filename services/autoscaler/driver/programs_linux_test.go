package driver

// programs are what the test binary is instead if its first argument names one.
var programs = map[string]func(args []string){
	"parent": func(args []string) { beParent(args[0], args[1:]) },
	"reaper": func(args []string) { beReaper(args[0], args[1]) },
}
