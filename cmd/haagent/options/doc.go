// Package options owns the options of the agent: one table says of each what it
// is called, what it takes, what it defaults to and what it is for. Flags, the
// environment, the YAML file, the help, the manual, the completions and the
// reference all come from it, and Resolve finds out which value is in force and
// where it was given.
//
//	--dir DIR          a flag
//	HAAGENT_DIR=DIR    the environment
//	dir: DIR           the YAML file of --config
//	storePathRootDir   the broker's own file of --broker-conf
//	                   the default
//
// The first of these that says something wins. The package knows neither the
// command line's library nor what an agent does with a value.
package options
