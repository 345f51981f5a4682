from . import losses as losses
