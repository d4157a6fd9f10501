// Package acks is the table of what replicas hold, and of those who wait for it.
package acks
