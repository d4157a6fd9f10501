// Package discovery finds other agents by gossip.
package discovery
