// Owns the precompiled header of everything above the torch line (cmake/torch.cmake).
