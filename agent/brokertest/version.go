package brokertest

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Version is a released version of RocketMQ, as Maven names it ("4.9.7").
type Version string

// The versions that replication is promised for.
const (
	V452 Version = "4.5.2"
	V497 Version = "4.9.7"
	V514 Version = "5.1.4"
	V533 Version = "5.3.3"
	V550 Version = "5.5.0"
)

// versionsVariable names the environment variable that chooses the versions.
const versionsVariable = "HAAGENT_BROKER_VERSIONS"

var versionPattern = regexp.MustCompile(`^[0-9]+(\.[0-9]+){2}(-[A-Za-z0-9.]+)?$`)

// Versions returns the versions that tests go through: one of each generation,
// or what HAAGENT_BROKER_VERSIONS lists, separated by commas. Words in it that
// are no version are returned too, so that the test which starts them fails.
func Versions() []Version {
	var vs []Version
	for _, word := range strings.FieldsFunc(os.Getenv(versionsVariable), func(r rune) bool { return r == ',' || r == ' ' }) {
		vs = append(vs, Version(word))
	}
	if len(vs) == 0 {
		return []Version{V497, V533}
	}
	return vs
}

// Major returns the generation of v: 4 or 5, or 0 where v is no version.
func (v Version) Major() int {
	if !versionPattern.MatchString(string(v)) {
		return 0
	}
	return int(v[0] - '0')
}

// AtLeast reports whether v is the release first or a later one. Words behind
// the numbers ("-SNAPSHOT") do not count.
func (v Version) AtLeast(first Version) bool {
	return slices.Compare(v.numbers(), first.numbers()) >= 0
}

func (v Version) numbers() []int {
	text, _, _ := strings.Cut(string(v), "-")
	var all []int
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil // no version
		}
		all = append(all, n)
	}
	return all
}

// ForEach runs test once for each of Versions, as a subtest named after it.
func ForEach(t *testing.T, test func(t *testing.T, v Version)) {
	t.Helper()
	for _, v := range Versions() {
		t.Run(string(v), func(t *testing.T) { test(t, v) })
	}
}
