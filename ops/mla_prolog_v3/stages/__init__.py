"""The stages of the MlaPrologV3 kernel on architecture 2201, one module each."""
