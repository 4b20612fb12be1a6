// Carries the shared precompiled header; see pch.h.
